123:::entry { }
