-- verb: ask signal
-- from: running
-- to: running
-- what: the code of a job asks for a signal; if it is not there, the deadline begins, and the caller will release the job
-- request
--   job_model, ident, token, name
--   delay   none to wait without a limit; only the first one counts
-- reply
--   done       {value: JSON}
--   in vain    {value}: it waited until its deadline, now or before
--   waits
--   refused    another owner holds the claim: nothing is changed
--   gone

--@include signaling

local job, name = job_of(request.job_model, request.ident), request.name
local refused = refusal(job, checked_token(request.token))
if refused then return answer(refused) end

local waits, text = unpack(redis.call('HMGET', job.key, '_waits', '_signals'))
local signals = signals_of(text)
local date, since = wait_for(waits, 'signal ' .. name)
local due = date ~= '' and (parse_date(date) and {at = parse_date(date), text = date} or due_at(request.delay)) or nil
local own = signals[name] ~= OF_FLOW and signals[name]
local of_flow = not own and signal_of_flow(claim_of(job)._flow, name)
local value, is_unasked = value_in(own or of_flow)

if not value and due and due.at <= now() then
  value, signals[name] = IN_VAIN, IN_VAIN
  update(job.model, job.pk, {_signals = cjson.encode(signals)}, claim_of(job))
end
if is_unasked and of_flow then
  redis.call('HSET', FLOW .. parse_flow(claim_of(job)._flow).flow .. ':signals', name, value)
end
if is_unasked and not of_flow or of_flow and signals[name] ~= OF_FLOW then
  signals[name] = of_flow and OF_FLOW or value
  update(job.model, job.pk, {_signals = cjson.encode(signals)}, claim_of(job))
end
if value then
  if date then update(job.model, job.pk, {_waits = false}, claim_of(job)) end
  return answer(value == IN_VAIN and 'in vain' or 'done', {value = value})
end
date = due and due.text or ''
update(job.model, job.pk, {_waits = waits_of(date, 'signal ' .. name, since, request.token)}, claim_of(job))
return answer('waits')
