"""The soft vote of several models as one model."""

from collections.abc import Sequence

from fourfold.model.pinned import keras


def of(models: Sequence[keras.Model]) -> keras.Model:
    """One model that gives the logarithm of the mean of its members' probabilities.

    Args:
        models: that give logits of the same classes for the same rows.
    """
    given = keras.Input(models[0].input_shape[1:], dtype=models[0].inputs[0].dtype)
    voices = []
    for index, model in enumerate(models):
        own = keras.models.clone_model(model)
        own.set_weights(model.get_weights())
        own.name = f"member_{index}"
        voices.append(keras.layers.Softmax()(own(given)))
    mean = keras.layers.Average()(voices) if len(voices) > 1 else voices[0]
    return keras.Model(given, keras.ops.log(mean + 1e-30))
