-- Ends the wait of an idle worker, for a job that was put in a waiting list by other means. No transition of a job.
--
-- KEYS[1]  the queue: model name and pk
--
-- 'done'

--@include notifying

notify_worker(KEYS[1])
return 'done'
