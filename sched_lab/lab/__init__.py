"""Instruments: callables and tidy frames only; nothing here knows a cluster."""
