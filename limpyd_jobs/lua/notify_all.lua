-- Ends the wait of all idle workers of a name, for them to look again. No transition of a job.
--
-- KEYS[1]  the list of a name that they wait for: queue model, ':_signal:', name
--
-- 'done'

--@include notifying

notify(KEYS[1], true)
return 'done'
