-- verb: requeue
-- from: error
-- to: waiting or delayed
-- what: to be run again, its identifier being free; by hand, with all the tries of its retry policy
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  queue model
-- ARGV[4]  queue name
-- ARGV[5]  priority, or '' to keep it
-- ARGV[6]  delay: '', '+<microseconds>' or '<microseconds since the epoch>'
-- ARGV[7]  mode: 'place'; 'bare' leaves the list or set to the caller
--
-- {'done', status, priority, delayed until or '', reindex}
-- {'not in error', status}
-- {'already queued', pk of the queued job of the same identifier}
-- {'gone'}

--@include claims
--@include places

local job = job_of(ARGV[1], ARGV[2])
local queue_model, queue_name, due = model_of(ARGV[3]), ARGV[4], due_at(ARGV[6])

local hash = redis.call('HMGET', job.key, 'status', 'identifier', 'priority', '_claim_token', 'tries')
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
local priority = ARGV[5] ~= '' and ARGV[5] or hash[3] or '0'
local changes = {start = false, ['end'] = false, _claim_token = false, _last_claim = false}
if not hash[4] then
  changes._uncounted_tries, changes._requeued_at = hash[5], now_text()
end
if ARGV[7] == 'bare' then
  update(job.model, job.pk, placed(changes, priority, due))
else
  place(job, queue_model, queue_name, priority, due, false, changes)
end
return {'done', changes.status, priority, changes.delayed_until or '', reindex}
