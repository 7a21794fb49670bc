"""What every threaded client of the shell needs: errors in Ottla's words, reachability, callbacks, headers."""
