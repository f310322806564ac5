"""The web through a search engine's API: SearXNG, Tavily or Brave."""
