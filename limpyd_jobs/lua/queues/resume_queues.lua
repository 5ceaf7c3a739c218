-- verb: resume queues
-- what: ends the pause of the queues of a name
-- KEYS[1]  set of the names that are paused
-- request
--   name
--   audit, unaudited
-- reply
--   done
--   unchanged   they were not paused

--@include envelope
--@include audit

if redis.call('SISMEMBER', KEYS[1], request.name) == 0 then return answer('unchanged') end
write_entry(request.audit)
redis.call('SREM', KEYS[1], request.name)
return answer('done')
