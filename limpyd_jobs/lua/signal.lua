-- Ends the wait of an idle worker, for it to look again. No transition of a job.
--
-- KEYS[1]  the list of a name that it waits for: queue model, ':signal:', name
--
-- 'done'

--@include signals

signal(KEYS[1])
return 'done'
