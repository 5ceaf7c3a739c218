-- Ends the wait of an idle worker, for a job that was put in a waiting list by other means. No transition of a job.
--
-- KEYS[1]  the queue: model name and pk
--
-- 'done'

--@include signals

tell(KEYS[1])
return 'done'
