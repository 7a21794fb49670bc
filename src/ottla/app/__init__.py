"""Handlers by decorator: what can be declared, how it is bound, and how a run of records reaches the function."""

from ottla.app.app import App
from ottla.app.declaration.route import Route
from ottla.app.declaration.router import Router
from ottla.app.handler.binding import BindingError
from ottla.app.handler.handler_context import Context
from ottla.app.handler.resources import Provide

__all__ = ["App", "BindingError", "Context", "Provide", "Route", "Router"]
