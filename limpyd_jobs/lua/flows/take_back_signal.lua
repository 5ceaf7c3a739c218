-- verb: take back signal
-- what: a signal that was sent to a job, or to all jobs of a flow, is forgotten, unless a job has it already
-- request
--   name
--   job_model, ident   of the job
--   flow               its name or its id, in place of these
-- reply
--   done
--     in all other cases nothing is changed:
--   asked   a job has asked for it, and has it
--   none    there is none of that name
--   gone

--@include signaling

local name = request.name
local job = request.ident and job_of(request.job_model, request.ident)
local flow = not job and (redis.call('GET', FLOWS .. ':name:' .. request.flow) or request.flow)
local signals, stored = {}, nil

if job then
  local status, text = unpack(redis.call('HMGET', job.key, 'status', '_signals'))
  if is_gone(job.model, job.pk, status) then return answer('gone') end
  signals = signals_of(text)
  stored = signals[name]
else
  if redis.call('EXISTS', FLOW .. flow) == 0 then return answer('gone') end
  stored = redis.call('HGET', FLOW .. flow .. ':signals', name)
end

if not stored or stored == IN_VAIN then return answer('none') end
local _, is_unasked = value_in(stored)
if not is_unasked then return answer('asked') end
if job then
  signals[name] = nil
  update(job.model, job.pk, {_signals = next(signals) and cjson.encode(signals) or false})
else
  redis.call('HDEL', FLOW .. flow .. ':signals', name)
end
return answer('done')
