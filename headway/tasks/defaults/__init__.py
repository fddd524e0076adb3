"""Settings that headway chooses for a run: by its task, data, pretrained model and budget. Printed, and overridable."""
