"""/openapi.json: the description of the API."""
