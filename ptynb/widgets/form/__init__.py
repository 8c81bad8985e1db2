"""The form of the settings, generated from their fields."""

from ptynb.widgets.form.form_view import SettingsForm as SettingsForm
