-- verb: retry deferred
-- what: those of a class that no worker could resolve so far are due at once, as one can by now
-- KEYS[1]  queue: model name and pk
-- request
--   job_model
--   idents      of jobs of that class
-- reply
--   done   {number: of jobs that are due now}. A job that is delayed for another reason stays so

--@include clock
--@include idents

local delayed, model = KEYS[1] .. ':delayed', model_of(request.job_model)
local moment, done = now(), 0

local function is_delayed_by_itself(ident)
  local _, pk = parse_ident(ident)
  local status, delayed_until = unpack(redis.pcall('HMGET', hash_key(model, pk), 'status', 'delayed_until'))
  local until_when = status == STATUSES.DELAYED and parse_date(delayed_until)
  return until_when and until_when > moment
end

for _, ident in ipairs(cjson.decode(request.idents)) do
  local at = redis.pcall('ZSCORE', delayed, ident)
  if type(at) == 'string' and tonumber(at) > moment / 1000000 and not is_delayed_by_itself(ident) then
    redis.call('ZADD', delayed, 'XX', score(moment), ident)
    done = done + 1
  end
end
return answer('done', {number = done})
