"""The demo: a real trace through a real Envoy to engine twins, with the controller in charge."""
