-- verb: keep presence
-- what: a presence is there until its lease ends; records of some whose lease has ended are deleted
-- KEYS[1]  sorted set of the presences, by when they end
-- request
--   model, lease, fields
--   pk             of its record, once it has one: a deleted record is made again
--   takes_orders   '1' if the record has a list of orders: these are told once
-- reply
--   done   {pk, since: the date of the first call, orders: [what others ask of it…]}

--@include presences
--@include orders

local model, pk, fields = model_of(request.model), request.pk, request.fields

-- A presence with a broken key must not be taken for dead.
local function take_orders()
  local key = orders_key(model, pk)
  local orders = redis.pcall('LRANGE', key, 0, -1)
  if orders.err or #orders > 0 then redis.call('UNLINK', key) end
  return not orders.err and orders or {}
end

probe('ZCARD', KEYS[1])
fields._lease = request.lease
if not pk or is_gone(model, pk) then
  pk = pk or new_pk(model)
  fields.since = fields.since or now_text()
  create(model, pk, fields)
else
  update(model, pk, fields)
end
redis.call('ZADD', KEYS[1], score(now() + tonumber(request.lease) * 1000000), pk)
sweep(KEYS[1], model)
return answer('done', {pk = pk, since = fields.since, orders = request.takes_orders and take_orders()})
