-- verb: pause queues
-- what: lets the jobs of the queues of a name wait
-- KEYS[1]  set of the names that are paused
-- request
--   name
--   audit, unaudited
-- reply
--   done
--   unchanged   they were paused already

--@include envelope
--@include audit

if redis.call('SISMEMBER', KEYS[1], request.name) == 1 then return answer('unchanged') end
write_entry(request.audit)
redis.call('SADD', KEYS[1], request.name)
return answer('done')
