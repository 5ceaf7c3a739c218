-- verb: give order
-- what: gives an order to a process that is there, which is notified with the next sign of life
-- KEYS[1]  sorted set of the presences, by when they end
-- request
--   model, pk, order
--   lasts   for how many seconds it is kept, unless it is told before
--   most    how many are kept, the last ones
--   audit, unaudited
-- reply
--   done
--   gone   there is no presence of that pk (any more): nothing is changed

--@include leases
--@include orders
--@include audit

local model, pk = model_of(request.model), request.pk
local key = orders_key(model, pk)

if is_gone(model, pk) or not is_leased(KEYS[1], pk) then return answer('gone') end
probe('LLEN', key)
write_entry(request.audit)
redis.call('RPUSH', key, request.order)
redis.call('LTRIM', key, -tonumber(request.most), -1)
redis.call('PEXPIRE', key, math.ceil(tonumber(request.lasts) * 1000))
return answer('done')
