"""The JSON of each kind of result: structures whose fields are its keys, and what fills them.
`None` is `null` in JSON, and means not measured unless a field says otherwise."""
