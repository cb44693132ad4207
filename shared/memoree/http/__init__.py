"""The HTTP door: `POST /v1/call` and what surrounds it. `app.create_app` ties the parts together."""
