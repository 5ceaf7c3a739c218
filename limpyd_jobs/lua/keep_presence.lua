-- verb: keep presence
-- what: somebody is there, for so many seconds from now
-- KEYS[1]  sorted set of those who are there, by when that ends
-- request
--   model, lease, fields
--   pk      of its record, once it has one: if that vanished, it is made anew
-- reply
--   done   {pk, since: the date of the first call}

--@include leases

local model, pk, fields = model_of(request.model), request.pk, request.fields

probe('ZCARD', KEYS[1])
if not pk or is_gone(model, pk) then
  pk = pk or new_pk(model)
  fields.since = fields.since or now_text()
  create(model, pk, fields)
end
redis.call('ZADD', KEYS[1], score(now() + tonumber(request.lease) * 1000000), pk)
return answer('done', {pk = pk, since = fields.since})
