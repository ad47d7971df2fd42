"""How near to a log its generators come: fitted to the first part of it, judged on the last."""
