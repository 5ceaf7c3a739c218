-- verb: notify one
-- what: ends the wait of an idle worker, for a job that was put in a waiting list by other means
-- KEYS[1]  the queue: model name and pk
-- reply
--   done

--@include envelope
--@include signals

notify_worker(KEYS[1])
return answer('done')
