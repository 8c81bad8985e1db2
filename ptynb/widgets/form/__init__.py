"""The form of the settings, made from their own structure."""

from ptynb.widgets.form.form_view import SettingsForm as SettingsForm
