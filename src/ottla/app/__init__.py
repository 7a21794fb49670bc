"""Handlers by decorator: what can be declared, how it is bound, and how a run of records reaches the function."""

from ottla.app.app import App as App
from ottla.app.declaration.route import Route as Route
from ottla.app.declaration.router import Router as Router
from ottla.app.handler.binding import BindingError as BindingError
from ottla.app.handler.handler_context import Context as Context
from ottla.app.handler.resources import Provide as Provide
