-- verb: send signal
-- from: waiting, delayed, running or error
-- to: the same or waiting
-- what: a job that waits for this signal is put in its queue; else it is kept until the job asks for it
-- request
--   job_model, ident, name
--   value   JSON
-- reply
--   received
--   kept      {waits: the name of the other signal that it waits for, if it does}
--     in all other cases nothing is changed:
--   already   there is one of that name, with another value
--   late      the job has waited for it in vain
--   ended     the job succeeded, or was canceled
--   full      it has too many
--   gone

--@include signaling

local job, name, value = job_of(request.job_model, request.ident), request.name, request.value
local status, waits, text, delayed_until = unpack(redis.call('HMGET', job.key, 'status', '_waits', '_signals', 'delayed_until'))
if is_gone(job.model, job.pk, status) then return answer('gone') end
local may_be_revived = status == STATUSES.CANCELED and waits and string.match(waits, '^undone')
if status == STATUSES.SUCCESS or status == STATUSES.CANCELED and not may_be_revived then return answer('ended') end

local signals = signals_of(text)
local old = signals[name]
if old == IN_VAIN then return answer('late') end
if old == OF_FLOW then
  local of_flow = value_in(signal_of_flow(redis.call('HGET', job.key, '_flow'), name))
  if of_flow then return answer(of_flow == value and 'kept' or 'already') end
  old = nil  -- its flow is gone, and the signal with it: a job that was put back waits for another one
end
if old and value_in(old) ~= value then return answer('already') end
signals[name] = old or UNASKED .. value
text = cjson.encode(signals)
if #text > MOST_TEXT then return answer('full') end
signals[name] = value
if place_if_it_waits(job, 'signal ' .. name, {_signals = cjson.encode(signals)}) then return answer('received') end
update(job.model, job.pk, {_signals = text}, {status = status})
local what = is_parked(status, delayed_until, waits) and string.match(waits, '^[^\n]*\n([^\n]*)')
return answer('kept', {waits = what and signal_in(what)})
