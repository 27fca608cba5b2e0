"""Fills a template: one HTML document with its style inside, readable in light, dark and print."""

from typing import Any

import jinja2

from fourfold.page.numbers import nats, percent


def render(package: str, template: str, **values: Any) -> str:
    """A page.

    Args:
        package: whose ``templates`` hold the template; it may extend ``base.html`` of this room.
        template: its file's name.
        **values: what the template names; an unknown name is an error.
    """
    loaders = [jinja2.PackageLoader(package, "templates"), jinja2.PackageLoader("fourfold.page", "templates")]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["nats"] = nats
    environment.filters["digits"] = lambda value: f"{value:,}"
    return environment.get_template(template).render(**values)
