"""The routes of the studio, a module for each page."""
