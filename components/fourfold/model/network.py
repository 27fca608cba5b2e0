"""The network that the experiment trains by default, and the optimisers it is trained with."""

from fourfold.contract.errors import InvalidInputError
from fourfold.model.pinned import keras

OPTIMIZERS = ("adam", "sgd", "momentum")


def build(shape: tuple[int, ...], classes: int, seed: int, family: str = "glorot_uniform") -> keras.Model:
    """A small convolutional network: two convolutions, each halved by pooling, then a dense layer of logits.

    On 28 x 28 x 1 it has 9,098 weights, 784 of its features reach the dense layer, and its first loss is
    about -log(1/classes).

    Args:
        shape: of one row, (height, width, channels).
        classes: number of classes.
        seed: of the weights' start; the same seed gives the same weights.
        family: of the initialiser of kernels, as Keras calls it.
    """
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input(shape),
            keras.layers.Conv2D(8, 3, padding="same", activation="relu", kernel_initializer=family),
            keras.layers.MaxPooling2D(2),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu", kernel_initializer=family),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(classes, kernel_initializer=family),
        ]
    )


def optimizer(name: str, learning_rate: float) -> keras.optimizers.Optimizer:
    """An optimiser by its name.

    Args:
        name: ``adam``; ``sgd``, plain; ``momentum``, SGD with momentum 0.9.
        learning_rate: its step size.

    Raises:
        InvalidInputError: the name is unknown.
    """
    if name == "adam":
        return keras.optimizers.Adam(learning_rate)
    if name == "sgd":
        return keras.optimizers.SGD(learning_rate)
    if name == "momentum":
        return keras.optimizers.SGD(learning_rate, momentum=0.9)
    raise InvalidInputError(f"unknown optimizer {name!r}: use one of {', '.join(OPTIMIZERS)}")
