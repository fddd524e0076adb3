"""Language modelling of conversations."""
