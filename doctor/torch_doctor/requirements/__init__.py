"""From a script's text and ``--need`` to Requirements. Text in, values out: nothing is read, nothing executed."""
