-- verb: notify one
-- what: ends the wait of an idle worker, for a job that was put in a waiting list by other means
-- KEYS[1]  the queue: model name and pk
-- request
--   leaves_lanes   whether to forget which worker looks at the lanes of the queue: it runs a job, and another one is to look
-- reply
--   done

--@include envelope
--@include signals

if request.leaves_lanes then redis.pcall('HDEL', KEYS[1] .. ':hash', '_looks') end
notify_worker(KEYS[1])
return answer('done')
