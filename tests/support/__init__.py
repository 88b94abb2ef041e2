"""Real parts that tests share: repositories and database servers."""
