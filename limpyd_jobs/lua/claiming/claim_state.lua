-- verb: claim state
-- what: tells the status of a job, who has a claim on it, and how long that holds
-- request
--   model, pk
-- reply
--   done   {status or '', token or '', left: seconds until the lease ends, less than 0 if it has ended; none without one}
--   gone

--@include records
--@include clock

local model = model_of(request.model)
local status, token, queue_key = unpack(redis.call(
  'HMGET', hash_key(model, request.pk), 'status', '_claim_token', '_queue_key'))
if not status and redis.call('EXISTS', hash_key(model, request.pk)) == 0 then
  return answer('gone')
end
local ends = queue_key and redis.pcall('ZSCORE', queue_key .. ':_running', model.path .. ':' .. request.pk)
local left = type(ends) == 'string' and tonumber(ends) - now() / 1000000
return answer('done', {status = status or '', token = token or '', left = left or nil})
