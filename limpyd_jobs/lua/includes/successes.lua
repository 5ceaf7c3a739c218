-- Successes: jobs that ran to their end, unless they were given another status meanwhile.

--@include claims

-- Keeps what the code of a job returned, for some milliseconds.
local function keep_result(job, text, kept_for)
  redis.call('SET', job.model.name .. ':' .. job.pk .. ':_result', text, 'PX', kept_for)
end

-- A job of which nothing is to be kept is gone already: it leaves nothing but its lease, if that.
local function forget_gone(job, queue)
  probe('ZCARD', queue .. ':_running')
  leave_running(queue, job)
end

-- Ends the claim on a job that succeeded, with more changes to its hash, or deletes it. What is returned, if anything, says why not:
-- then nothing is changed. So it is for a caller who did that already, whose first reply was lost.
local function end_in_success(job, token, queue, changes, is_erased, result, kept_for)
  local status = claim_of(job).status
  if status == 'c' then
    return 'canceled'
  elseif status == 'd' then
    return 'delayed'
  end
  local refused = refusal(job, token)
  if refused then
    return refused
  end
  if is_erased then
    probe('ZCARD', queue .. ':_running')
    delete_record(job.model, job.pk, 's')
    return leave_running(queue, job)
  end
  probe('LLEN', queue .. ':success')
  changes.status, changes.queued = 's', false
  end_claim(queue, job, changes, token)
  send('RPUSH', queue .. ':success', job.ident)
  if result then keep_result(job, result, kept_for) end
end
