-- verb: requeue
-- from: error
-- to: waiting or delayed
-- what: to be run again, its identifier being free; by hand, with all the tries of its retry policy, and its priority
-- request
--   job_model, ident, queue_model, queue_name, delay
--   priority   none for its own, or the one it had before its retry policy changed it
--   custom     '1' to leave the list or set to the caller
-- reply
--   done             {status, priority, delayed_until or ''}
--   not in error
--   already queued   {pk of the queued job of the same identifier}
--   gone

--@include claims
--@include places

local job = job_of(request.job_model, request.ident)
local queue_model, queue_name, due = model_of(request.queue_model), request.queue_name, due_at(request.delay)

local hash = redis.call(
  'HMGET', job.key, 'status', 'identifier', 'priority', '_claim_token', 'tries', '_first_priority')
if is_gone(job.model, job.pk) then
  return answer('gone')
elseif hash[1] ~= 'e' then
  return answer('not in error')
end

local other = hash[2] and other_queued(job, hash[2])
if other then
  return answer('already queued', {pk = other})
end

-- If it is a hook of its worker that puts the job back, the claim is still held.
if hash[4] then
  unplace(queue_model, queue_name, job)
end
local own = hash[3] or '0'
local first = first_priority(hash[6], own)
local priority = request.priority or not hash[4] and first or own
local changes = {start = false, ['end'] = false, _claim_token = false, _last_claim = false}
if not hash[4] then
  changes._uncounted_tries, changes._requeued_at, changes._first_priority = hash[5], now_text(), false
elseif first then
  changes._first_priority = note_of_priority(first, priority)
end
if request.custom then
  update(job.model, job.pk, placed(changes, priority, due))
else
  place(job, queue_model, queue_name, priority, due, false, changes)
end
return answer('done', {status = changes.status, priority = priority, delayed_until = changes.delayed_until or ''})
