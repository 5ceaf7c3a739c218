-- verb: append log
-- what: adds a line to the log of a job, of which the last ones are kept, for some time
-- request
--   model, pk
--   line
--   most       how many lines are kept
--   kept_for   seconds
-- reply
--   done
--   gone

--@include records
--@include clock

local model = model_of(request.model)
local key = model.name .. ':' .. request.pk .. ':_log'

if not is_in_collection(model, request.pk) then
  return answer('gone')
end
redis.call('RPUSH', key, now_text() .. ' ' .. (request.line or ''))
redis.call('LTRIM', key, -tonumber(request.most), -1)
redis.call('EXPIRE', key, request.kept_for)
return answer('done')
