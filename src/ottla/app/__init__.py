"""Handlers by decorator: what can be declared, how it is bound, and how a run of records reaches the function."""

from ottla.app.app import App
from ottla.app.handler.binding import BindingError
from ottla.app.handler.handler_context import Context
from ottla.app.handler.resources import Provide
from ottla.app.route import Route
from ottla.app.router import Router

__all__ = ["App", "BindingError", "Context", "Provide", "Route", "Router"]
