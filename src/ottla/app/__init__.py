"""Handlers by decorator: what can be declared, how it is bound, and how a run of records reaches the function."""

from ottla.app.app import App
from ottla.app.handler.binding import BindingError
from ottla.app.handler.handler_context import Context
from ottla.app.route import Route

__all__ = ["App", "BindingError", "Context", "Route"]
