BEGIN { trace(msgsize(0)); trace(ddi_pathname(0, 0)); trace(sx_shared_held(0)); trace(mtons(1)); }
