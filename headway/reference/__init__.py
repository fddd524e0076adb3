"""Settings, recipes and error codes as data, for `headway explain`, editors and the docs. No torch here."""
