"""Keras as every run has it, whatever a user's environment or ``keras.json`` say."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras  # noqa: E402

if keras.backend.backend() != "tensorflow":
    raise RuntimeError(
        f"Keras was imported before with the backend {keras.backend.backend()!r}; it needs tensorflow"
    )
keras.config.set_floatx("float32")
keras.config.set_image_data_format("channels_last")
keras.config.set_epsilon(1e-7)

__all__ = ["keras"]
