"""The API group firsttoken.dev: pydantic models, from which crds/*.yaml is generated."""
