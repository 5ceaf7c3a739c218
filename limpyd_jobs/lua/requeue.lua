-- verb: requeue
-- from: error
-- to: waiting or delayed
-- what: to be run again, its identifier being free; by hand, with all the tries of its retry policy, and its priority
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  queue model
-- ARGV[4]  queue name
-- ARGV[5]  priority; or '' for its own, or the one it had before its retry policy changed it
-- ARGV[6]  delay: '', '+<microseconds>' or '<microseconds since the epoch>'
-- ARGV[7]  mode: 'place'; 'custom' leaves the list or set to the caller
--
-- {'done', status, priority, delayed until or '', reindex}
-- {'not in error', status}
-- {'already queued', pk of the queued job of the same identifier}
-- {'gone'}

--@include claims
--@include places

local job = job_of(ARGV[1], ARGV[2])
local queue_model, queue_name, due = model_of(ARGV[3]), ARGV[4], due_at(ARGV[6])

local hash = redis.call(
  'HMGET', job.key, 'status', 'identifier', 'priority', '_claim_token', 'tries', '_first_priority')
if is_gone(job.model, job.pk) then
  return {'gone'}
elseif hash[1] ~= 'e' then
  return {'not in error', hash[1] or ''}
end

local other = hash[2] and other_queued(job, hash[2])
if other then
  return {'already queued', other}
end

-- If it is a hook of its worker that puts the job back, the claim is still held.
if hash[4] then
  unplace(queue_model, queue_name, job)
end
local own = hash[3] or '0'
local first = first_priority(hash[6], own)
local priority = ARGV[5] ~= '' and ARGV[5] or not hash[4] and first or own
local changes = {start = false, ['end'] = false, _claim_token = false, _last_claim = false}
if not hash[4] then
  changes._uncounted_tries, changes._requeued_at, changes._first_priority = hash[5], now_text(), false
elseif first then
  changes._first_priority = note_of_priority(first, priority)
end
if ARGV[7] == 'custom' then
  update(job.model, job.pk, placed(changes, priority, due))
else
  place(job, queue_model, queue_name, priority, due, false, changes)
end
return {'done', changes.status, priority, changes.delayed_until or '', reindex}
