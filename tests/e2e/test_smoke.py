"""The first light: a query goes through."""


def test_select(weir):
    assert weir().value("select 42") == 42
