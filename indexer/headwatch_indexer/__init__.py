"""git → symbols → chunks → rows → answers. Synchronous; no environment, sleeping, printing or signals."""
