"""The composition root: builds every part from the settings, starts it, and stops it in reverse order.

This is the only package that knows every concrete class. Settings are declared in `app/settings.py`.
"""
