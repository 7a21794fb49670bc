"""What every asyncio client of the shell needs: errors in Ottla's words, reachability, throttling, the end of tasks."""
