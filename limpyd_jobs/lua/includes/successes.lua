-- Successes: jobs that ran to their end, and were not given another status meanwhile.

--@include claims

-- Keeps the result of a job for some milliseconds.
--@rarely
local function keep_result(job, text, kept_for)
  redis.call('SET', job.model.name .. ':' .. job.pk .. ':_result', text, 'PX', kept_for)
end

-- A job of which nothing is kept is gone already: only its lease may be left.
--@rarely
local function forget_gone(job, queue)
  probe('ZCARD', queue .. ':_running')
  leave_running(queue, job)
end

-- Ends the claim on a job that succeeded, and sets its times, if given, or deletes it; the token comes from
-- `checked_token`. If it cannot, it changes nothing, and returns why. The same holds for a caller that did that already, and whose first reply was lost.
local function end_in_success(job, token, queue, start, finish, is_erased, result, kept_for)
  local status = claim_of(job).status
  if status == STATUSES.CANCELED then
    return 'canceled'
  elseif status == STATUSES.DELAYED then
    return 'delayed'
  end
  local refused = refusal(job, token)
  if refused then
    return refused
  end
  if result and claim_of(job)._flow then keep_for_flow(claim_of(job)._flow, result) end
  if is_erased and not claim_of(job)._emitted then  -- those who follow its output have yet to read the end
    probe('ZCARD', queue .. ':_running')
    delete_record(job.model, job.pk, STATUSES.SUCCESS)
    return leave_running(queue, job)
  end
  probe('LLEN', queue .. ':success')
  end_claim(queue, job, {
    status = STATUSES.SUCCESS, queued = false, start = start, ['end'] = finish, _cursor = false,
    _claim_token = false, _rescues = false, _last_claim = false,  -- as end_claim sets them: a table that grows costs time
  }, token)
  send('RPUSH', queue .. ':success', job.ident)
  if result and tonumber(kept_for) > 0 then keep_result(job, result, kept_for) end
end
